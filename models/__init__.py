"""The ledger's tables (`models.tables`) and their migrations, which need no table's class: a third of their imports."""
