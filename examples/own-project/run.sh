#!/usr/bin/env bash
# Check the project, write two days, and look at their statistics.
set -euo pipefail
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
export DAGSTER_HOME="${DAGSTER_HOME:-$PWD/dagster_home}"
mkdir -p "$DAGSTER_HOME"
touch "$DAGSTER_HOME/dagster.yaml"

dg check defs
dg launch --assets "key:shop/orders" --partition 2024-01-01
dg launch --assets "key:shop/orders or key:metastore/orders/orders_partitions" --partition 2024-01-02
dg launch --assets "key:metastore/orders/orders_statistics"

metastore --config own_project/defs/statistics/metastore.yaml show orders
