"""Who may come in, and when: keys, rates, the request scheduler, the budget of tokens.

Dialects come in by ``front``, the HTTP server by ``shedding``. Nothing here knows a dialect or a
Triton.
"""
