"""Every option of the product: declared, parsed and checked here. Nothing here imports another folder."""
