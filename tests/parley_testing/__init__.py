"""What the Python tests share: a deployment of its own in a scratch folder, and plain HTTP to it."""
from .deployment import Deployment, Reply, needs_root  # noqa: F401
