// Everything a page needs. Without it, all pages still work by links and forms.
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startPalette } from "./palette.js";
import { startNeeds } from "./needs.js";
import { startParts } from "./parts.js";

startParts();
startLive();
startNeeds();
startKeys(startPalette());
