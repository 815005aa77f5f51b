"""Statistics that users define in modules of their own, and those that are shipped in the same way.

kinds      what a user derives a class from
loading    from its name in the configuration to the class, and what it was when numbers were computed
states     its mergeable states, as Arrow data
results    a value, and what it is worth
telling    from states, or from lists of values, to results
laws       what a class has to keep, tried on random data
shipped    some that are ready to use
"""
