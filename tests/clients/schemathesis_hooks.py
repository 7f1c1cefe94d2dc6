"""Puts the served model into generated requests: others are refused at once."""

import schemathesis


@schemathesis.hook
def before_load_schema(context, raw_schema):
    options = raw_schema["components"]["schemas"]["GenerationOptions"]["properties"]
    options["model"] = {"enum": ["default"]}
