"""Statistics that users define in their modules, and some that are shipped with the package.

interface  the base classes of user-defined statistics
loading    from a name in the configuration to the class
states     mergeable states as Arrow data
results    a value with its guarantee
finalize   results from states or from frequencies
laws       the laws of a class, tested on random data
shipped    statistics that are ready to use
"""
