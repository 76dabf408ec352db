"""The evaluate role: counters, windows and drift out of window records, and their exposition.

``Evaluator`` owns the thread that reads; everything below it is a function of values, with the time
passed in. It never writes to Kafka.
"""
