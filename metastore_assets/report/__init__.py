"""Presentation of columns for people: values and numbers as text, Markdown, pictures, and the HTML report."""
