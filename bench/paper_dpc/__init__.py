"""The experiments of the DPC paper, on real processes; ``make paper-dpc``."""
