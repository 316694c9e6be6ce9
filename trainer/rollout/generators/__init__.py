"""What plays an episode: a Hugging Face model, a model server, or a policy that writes text."""
