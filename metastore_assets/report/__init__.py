"""Presentation of columns for people: values and numbers as text, bars, pictures, and the HTML report."""
