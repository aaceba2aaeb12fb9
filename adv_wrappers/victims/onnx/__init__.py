"""Victims from ONNX files: as modules of torch, or run by ONNX Runtime."""
