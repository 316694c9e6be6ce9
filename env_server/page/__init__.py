"""The page at `/` for people: play an episode by hand, watch the server, replay its episodes.

HTML from templates, made here; a script of a few lines adds the live board and the arrow keys. The
texts of models are escaped, and the Content-Security-Policy allows no script but that one. The page
loads nothing from anywhere else, and its links are relative, so that a gateway may add a prefix.
"""
