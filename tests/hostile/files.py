"""All kernel files that attack, deceive or are merely odd."""

from __future__ import annotations

from cheating_files import CHEATING
from ending_files import ENDING
from escaping_files import ESCAPING
from forging_files import FORGING
from honest_files import HONEST
from kernel_source import File
from leaving_files import LEAVING
from returning_files import RETURNING

FILES: list[File] = [*HONEST, *ENDING, *RETURNING, *ESCAPING, *FORGING, *CHEATING, *LEAVING]
