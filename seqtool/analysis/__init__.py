"""Pictures of what models do."""
