// What a page in a frame of another site loads: lights, and the diagram's keys.
import { diagrams } from "./diagram.js";
import { lights } from "./lights.js";

lights();
diagrams();
