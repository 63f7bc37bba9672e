"""The plain form in which a base model is asked where its operator wants it: it has no chat template, and continues a
text that names who speaks. Such a model has not learnt to stop: an answer ends where the text names the next speaker.
"""

#: Messages of the system, which are not of this dialogue, are paragraphs before the others.
PLAIN_CHAT = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'system' -%}{{ (message.content | trim) ~ '\n\n' }}"
    "{%- else -%}{{ 'Assistant' if message.role == 'assistant' else 'User' }}: {{ message.content | trim }}"
    "{{ '\n' if not loop.last or add_generation_prompt }}"
    "{%- endif -%}{%- endfor -%}"
    "{{ 'Assistant:' if add_generation_prompt }}"
)
PLAIN_STOPS = ("\nUser:", "\nAssistant:")
