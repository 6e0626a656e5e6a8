"""No models. But only of an app that has this module does Django say when it has migrated."""
