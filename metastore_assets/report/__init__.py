"""Presentation of columns: values and numbers as text, Markdown, pictures, and the HTML report."""
