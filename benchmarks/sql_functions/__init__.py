"""Looks for the most expensive statement that the SQL jail admits.

    python -m benchmarks.sql_functions [--seed N] [--tries N] [--only KIND] [--json PATH]

Fuzzes every allowed function on one worker process of a server, under its limits. The kinds, of
which a repeated `--only` chooses some:

calls        each scalar function in a loop, with arguments drawn from values of up to 48 kB:
             CPU time per call and per byte of its arguments
rows         each aggregate and window function over rows in adverse orders, with DISTINCT, ORDER
             BY, FILTER or a frame: CPU time per row
statements   sorts, DISTINCT, GROUP BY, IN, recursion, joins, compilation; and the most expensive
             calls again, first as often as a statement compiles, which nothing interrupts, then
             after 1.8 s of other work

The same seed gives the same statements. Exit code: 1 if a statement took `--most-s` seconds of CPU
or killed its worker.
"""
