"""Raw events and window records counted again, to prove windows and counters right.

It reads Kafka between two times or offsets, and changes nothing.
"""
