"""What people see of a column, in the terminal and in Dagster alike: numbers and values as text, bars, pictures."""
