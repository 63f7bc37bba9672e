"""The OpenAI API as Agon speaks it: requests, replies, and how pieces of answers become replies."""
