"""Case study: sparse voxel features from the GPU to CPU post-processing."""
