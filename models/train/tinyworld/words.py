"""The closed vocabulary that worlds are made of: who, what, where."""

GIRLS = """Mia Anna Zoe Nora Ella Lucy Amy Sara Tia Maya Dora Clara Kate Hana Luna Emma Sofia Lena Nina Ada
Eva Leah Molly Katie Becky Carla Dina Elsa Fiona Greta Heidi Irma Jenny Julia Kira Laura Mina Nadia Olga Paula
Rita Sally Tara Uma Vera Wanda Yara Zara Aisha Bella Celia Edith Freya Gemma Hilda Ingrid Jana Keiko Linda Mona
Naomi Priya Rosa Selma Thea Tessa Alma Betty Cora Delia""".split()
BOYS = """Tom Ben Max Sam Leo Finn Noah Owen Theo Luke Eli Hugo Adam Milo Kai Dan Omar Ravi Otto Jack
Alan Boris Carl David Emil Felix Gus Henry Ian Jacob Kevin Liam Mateo Nils Oscar Paul Quinn Ralf Simon Timmy
Ugo Victor Walter Yusuf Zane Anton Bruno Caleb Diego Ernie Fred Georg Hans Ivan Jonas Karim Lars Mario Nico Oliver
Peter Remo Sven Tariq Viktor Wim Andy Bobby Charlie Danny""".split()
SHE_ANIMALS = """Tilly Coco Dotty Nelly Lulu Mimi Bibi Fifi Zuzu Kiki Tootsie Pippa Minka Trixie Dilly Nutty
Lolli Susu Gigi Wanja Millie Roxy Tulla Nanna Binky Flossie Hettie Dumpa Quilla Vivi Momo Sissy Lotta Jilly Pinka
Tansy""".split()
HE_ANIMALS = """Pip Bo Olly Nib Ziggy Tink Bruno Rufus Monty Gizmo Bobo Toto Dodo Fergus Barnaby Otis Rollo
Hoppy Chip Duffy Wally Tobo Pogo Snuff Mungo Kobo Rango Baxter Jojo Zeppo Tuck Ruffo Basil Grumbo Humphrey Boomer
Scamp""".replace("Bruno ", "").split()
NAMES = GIRLS + BOYS + SHE_ANIMALS + HE_ANIMALS

# Names and things that stories of the training split never have; tasks have them, so that their
# embeddings are trained.
HELD_NAMES = set("Lena Greta Naomi Felix Oscar Karim Mimi Trixie Monty Otis Clara Victor".split())
HELD_THINGS = set("lantern violin teapot peach sailboat".split())

SPECIES = """fox rabbit bear mouse frog owl squirrel hedgehog duck turtle kitten puppy deer badger bird lamb pony
mole otter bee goat pig hen wolf beaver penguin monkey elephant lion tiger crab snail goose donkey raccoon camel
giraffe zebra koala swan sparrow lizard seal panda dragon hamster crow ant ladybug cow chick""".split()
JOBS = """baker farmer sailor painter teacher doctor gardener fisher knight king queen prince princess wizard
tailor singer dancer shepherd builder cook miller giant robot""".split()
HE_JOBS = "knight king prince wizard".split()
SHE_JOBS = "queen princess".split()

COLORS = "red blue green yellow purple orange white black pink brown silver golden gray".split()
TOYS = """ball kite doll hat boat drum book scarf bell cup lantern key ring whistle basket wagon teddy shell
umbrella violin mirror coin button teapot feather ribbon blanket flute marble puzzle glove spoon balloon sailboat
pencil backpack""".split()
FOODS = """apple cake pie pear cookie sandwich carrot peach plum pancake muffin banana melon pizza bun tomato
potato biscuit cupcake waffle""".split()
INGREDIENTS = """flour milk eggs sugar butter salt honey apples carrots berries cheese nuts lemons rice onions beans
""".split()
FLOWERS = "tulip sunflower daisy violet poppy buttercup".split()
TREASURES = """a pile of gold coins,an old letter,a golden crown,a shiny stone,a tiny silver bell,a bag of sweets,
a magic lamp,a box of paints,a map of the stars,a music box""".replace("\n", "").split(",")
INSTRUMENTS = "drum flute violin piano guitar trumpet".split()
PETS = "puppy kitten hamster bird fish rabbit".split()
PET_NAMES = "Muffy Blacky Tiggy Jumbo Fluffy Speedy".split()
FAMILY = "mom dad grandma grandpa aunt uncle sister brother".split()
NUMBERS = "two three four five six seven eight nine ten".split()
WEATHER = "sunny rainy windy cloudy warm cold snowy bright foggy".split()
SEASONS = "spring summer autumn winter".split()
TRAITS = "little small kind cheerful curious young clever gentle playful friendly careful busy".split()

PLACES = {
    "park": "in", "garden": "in", "forest": "in", "beach": "on", "farm": "on", "market": "at",
    "hill": "on", "river": "by", "lake": "by", "barn": "in", "meadow": "in", "village": "in",
    "school": "at", "bridge": "by", "lighthouse": "at", "castle": "at", "island": "on", "cave": "in",
    "mill": "at", "harbor": "at", "library": "in", "pond": "by", "orchard": "in", "valley": "in",
    "jungle": "in", "tower": "in", "bakery": "at", "station": "at", "museum": "in", "desert": "in",
    "playground": "on", "field": "in", "town": "in", "waterfall": "by", "mountain": "on", "zoo": "at",
}
SPOTS = """under the bed,behind the tree,in the tall grass,under a big leaf,next to the old wall,inside a box,
behind the door,under the bench,in a bush,on top of the shelf,near the well,beside the gate,under the stairs,
behind the curtain,in the sand,between two rocks,inside an old boot,under a chair,in a bird nest,on the roof,
behind the barn,in a hollow log,under the table,in the mud""".replace("\n", "").split(",")
ROOMS = "kitchen bedroom hall attic cellar bathroom garden garage".split()
NEAR = """near the river,by the sea,in a small house,in a big old tree,near the forest,at the edge of the village,
on a green hill,in a little red house,near the lake,under an old bridge,in a house with a blue door,
behind the mill,in a warm and cozy home,far up in the north""".replace("\n", "").split(",")
HOBBIES = """sing,climb hills,look at the stars,read books,play in the snow,tell jokes,run in the grass,paint pictures,
collect stones,dance in the rain,make soup,watch the clouds,play hide and seek,pick berries""".replace("\n", "").split(",")


def a(noun: str) -> str:
    """The noun with its indefinite article."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def cap(text: str) -> str:
    return text[0].upper() + text[1:]
