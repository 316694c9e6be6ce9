"""The shipped databases, questions and models, and the code that builds and checks data sets."""
