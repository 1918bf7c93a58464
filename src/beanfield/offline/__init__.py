"""What works on data roots while no server does: inspecting, verifying, salvaging, importing, resizing."""
