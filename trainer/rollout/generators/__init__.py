"""What plays an episode: base (the protocols), local (a Hugging Face model), policies (random,
scripted)."""
