"""`python -m trainer evaluate`: any policy measured on any questions, kept by episode, compared in
pairs."""
