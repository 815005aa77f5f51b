"""Statistics of columns, as pure functions on Arrow data.

The package uses no Spark, no Dagster and no files.

A column's *frequencies* are its distinct values with their counts, in ascending order. Profiling a column counts its
values once, and updates all statistics from the counts, block by block. If too many values are distinct, they are not
counted but hashed and sketched. The modules:

    profile            profiling one top-level column
    column_profiler    all statistics of one column, block by block
    counting           value counts of a column that arrives in chunks (value_runs: counts and merges its parts)
    frequencies        exact frequencies: sums, summaries, and derivation from other statistics
    blocks             values with their counts, as statistics receive them
    registry           the built-in statistics
    interface          the interface of a built-in statistic
    counts             number of NaN and of true
    lengths            lengths and bytes
    extremes           minimum and maximum
    distinct           distinct count, HyperLogLog
    moments            sum, mean, deviation, skewness, kurtosis (power_sums: exact sums)
    quantiles          percentiles, t-digest
    histogram          histograms whose bin widths are powers of two
    multiset_hash      a hash that is equal for equal rows in any order
    user_defined       user-defined statistics
    states             tables of states, the input of merges
    merge              merging tables of states (merge_rules: one rule per kind)
    finalize           reported statistics from states
    current_schema     older statistics with the path and type of the current schema
    column             one row of statistics, and its JSON (declaration: how each is stored, merged and reported)
    profile_tables     the Arrow tables of the files (typed_union: values of all type classes in one column)
    hashing            stable hashes of values (keyed_hashing: under a secret key)
    fingerprints       48 bits of each value's hash
    value_filter       compact sets of hashes that exclude values
    theta              theta sketches of Apache DataSketches (murmur3: their hash function)
    distances          distances of two distributions

Each module defines its statistics and names the sources of its formulas. Import names from the modules; importing this
package imports nothing heavy.
"""
