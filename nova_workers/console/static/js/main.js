// Everything a page needs. Without it, all pages still work by links and forms.
import { startFilters } from "./filters.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startPalette } from "./palette.js";
import { startNeeds } from "./needs.js";
import { startParts } from "./parts.js";

startParts();
startFilters();
startLive();
startNeeds();
startKeys(startPalette());
