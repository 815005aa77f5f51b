"""Reading of JSON lines: types are inferred from all values, or declared; then the values are parsed."""
