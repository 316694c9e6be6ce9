"""`python -m trainer evaluate`: measure any policy on any questions, and compare in pairs."""
