"""Whether what is stored is what the table says: computed again, compared, told."""
