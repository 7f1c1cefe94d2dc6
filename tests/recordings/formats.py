"""The seven formats of tool calls: how a template shows them, and how a model writes them."""

import json

# Every template has the same turns; formats differ in the texts around calls.
TEMPLATE = """{%- macro text(content) -%}
{%- if content is string -%}{{ content }}
{%- elif content is iterable -%}{%- for part in content -%}{{ part.text }}{%- endfor -%}{%- endif -%}
{%- endmacro -%}
{%- if tools %}<|im_start|>system
Tools:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}<|im_end|>
{% endif -%}
{%- if documents %}<|im_start|>documents
{%- for document in documents %}
{{ document.title }}: {{ document.text }}
{%- endfor %}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{% if message.reasoning_content %}OPEN
{{ message.reasoning_content }}
CLOSE

{% endif %}{{ text(message.content) -}}
{%- for call in message.tool_calls or [] -%}
{%- set call = call.function or call -%}
CALL
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
PROMPT{% endif -%}
"""
# Prompts that end inside the thinking, or after it.
THINKING = """{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% else %}<think>
{% endif %}"""
# Prompts that leave the thinking to the model.
OPTIONAL = """{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}"""
XML = """<tool_call>
<function={{ call.name }}>
{% for name, value in call.arguments | items %}<parameter={{ name }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>"""
GLM = """<tool_call>{{ call.name }}
{% for name, value in call.arguments | items %}<arg_key>{{ name }}</arg_key>
<arg_value>{{ value if value is string else value | tojson }}</arg_value>
{% endfor %}</tool_call>"""
JSON = '{"name": "{{ call.name }}", "KEY": {{ call.arguments | tojson }}}'
CALLS = {
    "hermes": "\n<tool_call>\n" + JSON.replace("KEY", "arguments") + "\n</tool_call>",
    "qwen-xml": XML,
    "glm-xml": GLM,
    "llama": "{#- Environment: ipython -#}" + JSON.replace("KEY", "parameters"),
    "mistral": "[TOOL_CALLS][" + JSON.replace("KEY", "arguments") + "]",
    "mistral-args": "[TOOL_CALLS]{{ call.name }}[ARGS]{{ call.arguments | tojson }}",
    "functionary": "<function={{ call.name }}>{{ call.arguments | tojson }}</function>",
}


def template(name):
    """Returns the chat template of a format."""
    prompt = {"qwen-xml": THINKING, "hermes": OPTIONAL, "glm-xml": OPTIONAL}.get(name, "")
    marks = {"mistral-args": ("[THINK]", "[/THINK]")}.get(name, ("<think>", "</think>"))
    if name in ("llama", "mistral", "functionary"):
        source = TEMPLATE.replace("{{ message.reasoning_content }}\nCLOSE\n", "{{ message.reasoning_content }}\n")
        source = source.replace("OPEN\n", "")
    else:
        source = TEMPLATE.replace("OPEN", marks[0]).replace("CLOSE", marks[1])
    return source.replace("CALL\n", CALLS[name] + "\n").replace("PROMPT", prompt)


def xml_value(value):
    """Returns a value as a model writes it between XML tags."""
    return value if isinstance(value, str) else json.dumps(value)


def calls(name, *each):
    """Returns the text of calls, each a pair of name and arguments."""
    texts = []
    for tool, arguments in each:
        data = json.dumps(arguments, ensure_ascii=False)
        pairs = [(key, xml_value(value)) for key, value in arguments.items()]
        if name == "hermes":
            texts.append('<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>' % (tool, data))
        elif name == "qwen-xml":
            inside = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in pairs)
            texts.append(f"<tool_call>\n<function={tool}>\n{inside}</function>\n</tool_call>")
        elif name == "glm-xml":
            inside = "".join(f"<arg_key>{k}</arg_key>\n<arg_value>{v}</arg_value>\n" for k, v in pairs)
            texts.append(f"<tool_call>{tool}\n{inside}</tool_call>")
        elif name == "llama":
            texts.append('{"name": "%s", "parameters": %s}' % (tool, data))
        elif name == "mistral":
            texts.append('{"name": "%s", "arguments": %s}' % (tool, data))
        elif name == "mistral-args":
            texts.append(f"[TOOL_CALLS]{tool}[ARGS]{data}")
        else:
            texts.append(f"<function={tool}>{data}</function>")
    if name == "mistral":
        return "[TOOL_CALLS][" + ", ".join(texts) + "]"
    return ("\n" if name in ("hermes", "qwen-xml", "glm-xml") else "").join(texts)
