#!/usr/bin/env bash
# From a class to its numbers, in the table and in a partition, before and after a commit.
set -euo pipefail
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"    # where the module is found, by this command and by what it starts

metastore check-statistic shop_statistics:WeekendShare

python commit.py Oslo 2024-01-01
python commit.py Lyon 2024-01-05
metastore refresh orders
metastore show orders --columns ordered,amount,number

python commit.py Lyon 2024-03-01
metastore refresh orders
metastore show orders --columns ordered,amount,number
metastore show orders --columns ordered --partition shop=Lyon
