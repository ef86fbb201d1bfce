"""The data plane: the wire, what a run is, sources, transforms, Source Loaders and Data Constructors."""
