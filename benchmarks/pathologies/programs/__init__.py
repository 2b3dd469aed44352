"""The programs, one file a family; each exports PROGRAMS."""
