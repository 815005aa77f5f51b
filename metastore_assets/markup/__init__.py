"""HTML elements, and small SVG charts of distributions, for the report and for notebooks."""
