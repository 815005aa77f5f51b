"""Presentation of columns to users: values and numbers as text, Markdown, pictures, and the HTML report."""
