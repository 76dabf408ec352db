"""The local stack behind ``headrace up``: real parts, as processes on this machine.

``settings`` says what to run, ``state`` owns the home folder, ``provision`` fetches the parts,
``services`` plans the processes and ``supervisor`` runs them. Services never import this package.
"""
