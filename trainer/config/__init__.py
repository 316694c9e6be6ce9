"""Settings of training (`settings.py`) and the presets of models (`presets.py`)."""
