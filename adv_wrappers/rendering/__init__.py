"""Pictures: attack views, contact sheets, spectra and plots, drawn from rows and arrays."""
