"""Requests that schemathesis makes up ask for the model that is there: others get no further."""

import schemathesis


@schemathesis.hook
def before_load_schema(context, raw_schema):
    options = raw_schema["components"]["schemas"]["GenerationOptions"]["properties"]
    options["model"] = {"enum": ["default"]}
