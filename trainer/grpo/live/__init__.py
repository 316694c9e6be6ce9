"""What a training shows while it runs.

`callback` has `LiveVisualizationCallback`, `scene` what is shown, `figures` and `text` draw it as
PNGs and as a terminal's characters, `views` brings it to a notebook, a terminal or files.
"""
