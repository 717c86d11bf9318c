"""Forms from JSON schemas: a field for each property, whatever the schema says; read back to a JSON value.

`shapes` turns a schema into shapes of fields, once; `nodes` puts a value into them for the template
``schema_form.html``; `reading` takes what the browser sent. A property that the schema gets appears by itself; one
that no field fits is edited as JSON.
"""

from nova_workers.console.schema_forms.nodes import Node, make_node, split_errors
from nova_workers.console.schema_forms.reading import Reading, edited, read_value
from nova_workers.console.schema_forms.shapes import Option, Shape, options_shape, shape_of

__all__ = [
    "Node",
    "Option",
    "Reading",
    "Shape",
    "edited",
    "make_node",
    "options_shape",
    "read_value",
    "shape_of",
    "split_errors",
]
