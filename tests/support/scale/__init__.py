"""How the controller's work grows with endpoints, with made-up loaders and gateways."""
