pytest_plugins = ["nova_workers.sdk.testing"]
