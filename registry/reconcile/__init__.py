"""What an endpoint's next status is: one loop over all endpoints, and what it decides by.

``controller`` is the loop, ``observer`` reads an endpoint's surroundings, ``plan`` is the pure
decision. Only ``controller.main`` builds it; ``rollouts`` is what it asks of rollouts.
"""
