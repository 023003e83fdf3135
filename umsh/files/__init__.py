"""Files into shared memory: safetensors, GGUF and raw, whole, lazily or as a stream."""

from umsh.files.load import load_file
from umsh.files.stream import Piece, stream_file
from umsh.files.tensors import FileTensor
from umsh.files.weights import Weights

__all__ = ["FileTensor", "Piece", "Weights", "load_file", "stream_file"]
