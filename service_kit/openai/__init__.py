"""The routes of the OpenAI API, written once for the controller and for a worker that serves alone."""
