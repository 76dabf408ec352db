"""Makes the CustomResourceDefinition of ``ModelEndpoint`` out of its pydantic models."""
